"""The router inside gateways of others: Envoy's external processing, and a plug-in for LiteLLM."""
