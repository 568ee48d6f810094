"""The gateway on Ray Serve: replicas and scaling are Ray's, everything else is as with `ir3de serve`."""

from ray import serve

from ir3de_gateway import application


@serve.deployment(num_replicas=2)
@serve.ingress(application)
class Replica:
    """One gateway; each replica reads the file that IR3DE_CONFIG names and follows the router it names."""


app = Replica.bind()
