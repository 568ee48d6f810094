"""Other people's routers, each in an environment of its own, all asked the same questions.

`measuring` runs in that environment and knows neither IR3DE nor the laboratory; each `use_…` file is one router.
"""
