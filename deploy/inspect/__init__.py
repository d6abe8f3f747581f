"""Looks at jobs that run elsewhere, and at what they have written. Nothing here runs a job, or is needed to run one.

audit/    `teacup audit`: a time range joined again by brute force, and compared
explain/  `teacup explain`: why a record was joined, or not
status/   `teacup status`: how jobs are that run elsewhere
"""
