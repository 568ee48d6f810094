"""The gateway's transport beside general HTTP clients: speed, memory, and what they make of faulty servers.

    python -m ir3de_lab.benchmarks.transports --save results/transports.json

needs `pip install pyreqwest httpx2 curl_cffi niquests`; those that are missing are left out.
"""
