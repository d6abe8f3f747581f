"""The migrations of the API's database, run by the server's start (`datadelay.api.store`)."""
