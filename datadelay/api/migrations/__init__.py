"""The migrations of the API's database, run when the server starts (`datadelay.api.store`)."""
