"""Fault rules applied to requests and their answers: delays, refusals, cut answers, closed connections."""
