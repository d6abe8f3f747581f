"""The Data Delay API: what collectors submit is kept, and published by the rules of `datadelay.publish`."""
