"""The side of the experts: what is served now, who may be asked, and the connections to them."""
