# `make` is what CI runs.
.PHONY: all lint test library gateway lab long coverage mutants fix figures trust trust-long audit docs site demo release
.DEFAULT_GOAL := all

all: test long lint

test:            ## make test K=storage runs a part
	pytest $(if $(K),-k $(K))

library:         ## the tests of the library alone
	pytest tests

gateway:         ## the tests of the gateway alone
	pytest gateway/tests

lab:             ## the tests of the laboratory alone
	pytest lab/tests

long:            ## the long tail: what `pytest` alone leaves out
	pytest -m "slow or nightly or hypothesis or torch or local or browser or node or ray or clients or encoder" --hypothesis-profile=thorough

coverage:        ## the tests, and which lines none of them runs
	pytest -m "slow or not slow" --cov --cov-report=term:skip-covered

mutants:         ## make mutants M=scorers/ridge.py: small wrong changes, and which of them no test notices
	python lab/scripts/mutate.py $(M) $(if $(T),--tests $(T))

lint:            ## style, types, and which room may import which
	ruff check .
	ruff format --check .
	mypy
	lint-imports
	python scripts/generate_cli_docs.py --check
	python scripts/generate_api_docs.py --check
	python scripts/generate_config_schema.py --check
	python scripts/generate_openapi.py --check
	python lab/scripts/generate_alternatives_docs.py --check
	python lab/scripts/generate_benchmark_docs.py --check
	python lab/scripts/generate_cold_start_docs.py --check
	python lab/scripts/generate_confidence_docs.py --check
	python lab/scripts/generate_conversation_docs.py --check
	python lab/scripts/generate_gain_docs.py --check
	python lab/scripts/generate_held_out_docs.py --check
	python lab/scripts/generate_language_docs.py --check
	python lab/scripts/generate_outcome_docs.py --check
	python lab/scripts/generate_privacy_docs.py --check
	python lab/scripts/generate_proof_docs.py --check
	python lab/scripts/generate_reliability_docs.py --check
	python lab/scripts/generate_results_readme.py --check
	python lab/scripts/generate_sentences.py --check
	python lab/scripts/generate_stale_marks.py --check

fix:             ## what a machine can put right
	ruff check --fix .
	ruff format .

figures:         ## every published figure that is older than the code, made again on a quiet machine, then the pages
	ir3de bench renew --data $(IR3DE_DATA) $(foreach one,$(ONLY),--only $(one)) $(RENEW)
	$(MAKE) docs

trust:           ## two minutes of changed inputs at every parser and faults under a real gateway; SEED=7 tries others
	ir3de bench trust --minutes 2 --seed $(or $(SEED),0) --findings trust-findings

trust-long:      ## half an hour of it, with a kill at every write; docs/reliability.md is made from its result
	ir3de bench trust --minutes 30 --seed $(or $(SEED),0) --findings trust-findings --save results/trust.json

audit:           ## known weaknesses of the installed packages; needs the network and `pip install pip-audit`
	pip-audit --skip-editable

docs:            ## the generated pages and pictures
	python scripts/generate_cli_docs.py
	python scripts/generate_api_docs.py
	python scripts/generate_config_schema.py
	python scripts/generate_openapi.py
	python lab/scripts/generate_alternatives_docs.py
	python lab/scripts/generate_benchmark_docs.py
	python lab/scripts/generate_cold_start_docs.py
	python lab/scripts/generate_confidence_docs.py
	python lab/scripts/generate_conversation_docs.py
	python lab/scripts/generate_gain_docs.py
	python lab/scripts/generate_held_out_docs.py
	python lab/scripts/generate_language_docs.py
	python lab/scripts/generate_outcome_docs.py
	python lab/scripts/generate_privacy_docs.py
	python lab/scripts/generate_proof_docs.py
	python lab/scripts/generate_reliability_docs.py
	ir3de bench figures --output docs/images/experiments
	python lab/scripts/generate_results_readme.py
	python lab/scripts/draw_terminal.py
	python lab/scripts/generate_stale_marks.py
	python lab/scripts/generate_sentences.py

site: export NO_MKDOCS_2_WARNING = 1
site:            ## the documentation as a site, in site/; needs `pip install ".[docs]"`
	mkdocs build --strict --quiet

release:         ## the three distributions, twice the same bytes, in clean environments; RELEASE_ALL=1 also what takes gigabytes
	python scripts/release.py $(if $(RELEASE_ALL),--all) $(foreach one,$(ONLY),--only $(one))

demo:            ## the first command of the README
	ir3de demo
