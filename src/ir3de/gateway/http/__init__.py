"""Where requests come in: who may, what answers without an expert, the page, and the document of it all."""
