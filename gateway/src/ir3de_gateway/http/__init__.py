"""HTTP endpoints that need no expert, access control, the page, and the OpenAPI document."""
