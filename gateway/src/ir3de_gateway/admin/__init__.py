"""Changes while the gateway serves: experts and routers, kept on disk and loaded by every worker."""
