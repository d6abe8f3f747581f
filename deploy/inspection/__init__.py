"""Looks at jobs that run elsewhere and at what they have written. Nothing here runs a job, and no job needs it.

audit/    `teacup audit`: joins a time range again by brute force and compares
explain/  `teacup explain`: why a record was joined, or not
status/   `teacup status`: how jobs are doing that run elsewhere
"""
