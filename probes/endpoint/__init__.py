"""Measuring a running server: a thin client of our own, the protocol, and the rules that make its numbers mean something.

`safety` says where a test may go, `dialects` what to say and how to read the answer, `client` stamps the times, `discovery`
asks what the server is, `protocol` runs the stages, `job` does it all in a process of its own. No torch.
"""
