"""Changes while it serves: experts and routers that come and go, kept on disk and followed by every worker."""
