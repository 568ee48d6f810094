"""A routing strategy for LiteLLM's Router: the chat decides which deployment of the model group answers."""

import os
from typing import Any

import litellm
from litellm.types.router import CustomRoutingStrategyBase

from ir3de import Conversation, Router


class RouterStrategy(CustomRoutingStrategyBase):
    """Takes the deployment whose id is the name of the likeliest expert."""

    def __init__(self, router: Router, deployments: litellm.Router) -> None:
        self.router, self.deployments = router, deployments

    def get_available_deployment(self, model: str, messages: Any = None, *_: Any, **__: Any) -> Any:
        group = {one["model_info"]["id"]: one for one in self.deployments.model_list if one["model_name"] == model}
        ranking = Conversation.from_messages(self.router, messages).decision.ranking
        found = [group[expert] for expert, _ in ranking if expert in group]
        if not found:
            raise ValueError(f"no deployment of {model!r} has the id of an expert: {', '.join(self.router.experts)}")
        return found[0]

    async def async_get_available_deployment(self, *args: Any, **options: Any) -> Any:
        return self.get_available_deployment(*args, **options)  # it takes microseconds


url = os.environ.get("IR3DE_URL", "http://127.0.0.1:8100/v1")  # or one address per deployment
router = Router.load(os.environ.get("IR3DE_ROUTER", "router"))
deployments = litellm.Router(
    model_list=[
        {
            "model_name": "auto",
            "litellm_params": {"model": f"openai/{expert}", "api_base": url, "api_key": "any"},
            "model_info": {"id": expert},
        }
        for expert in router.experts
    ]
)
deployments.set_custom_routing_strategy(RouterStrategy(router, deployments))

answer = deployments.completion("auto", [{"role": "user", "content": "Can my landlord evict me?"}])
print(answer.choices[0].message.content)
for chunk in deployments.completion("auto", [{"role": "user", "content": "Solve 3x = 12."}], stream=True):
    print(chunk.choices[0].delta.content or "", end="", flush=True)
print()
