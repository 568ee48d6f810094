"""The price file: prices of experts apart from the configuration, so that they can be updated by themselves."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from pydantic import ValidationError

from ir3de.errors import InputError, IR3DEError
from ir3de_gateway.config.document import Config
from ir3de_gateway.config.experts import Price
from ir3de_gateway.config.findings import Finding


def apply_price_file(config: Config) -> Config:
    """The configuration with the prices of its price file; an `IR3DEError` if that cannot be used."""
    return config if config.prices is None else config.with_prices(read_price_file(Path(config.prices)))


def read_price_file(path: Path) -> dict[str, Price]:
    """The prices of a file: {expert: price}, as `ir3de compare --prices` reads it, too."""
    from ir3de.traffic import read_prices

    found = dict[str, Price]()
    for name, price in read_prices(path).items():
        try:
            found[name] = Price(**asdict(price))
        except ValidationError as error:
            text = error.errors()[0]["msg"].removeprefix("Value error, ")
            raise InputError(f"{path}, {name}: {text}") from None
    return found


def check_price_file(config: Config) -> tuple[Config, list[Finding]]:
    """The configuration with its price file; findings if that cannot be used, or if one of its prices is not used."""
    try:
        priced = apply_price_file(config)
    except IR3DEError as error:
        return config, [Finding("error", "prices", str(error))]
    own = [(place, one) for place, one in enumerate(config.experts) if "price" in one.model_fields_set]
    text = "is used, and not the one in the price file: keep one of them"
    double = [(place, one) for place, one in own if one.name in priced.listed_prices]
    return priced, [
        Finding("warning", f"experts.{place}.price", f"the price of {one.name} {text}") for place, one in double
    ]
