"""How far has a consumer come in event time?"""
