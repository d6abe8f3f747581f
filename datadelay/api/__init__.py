"""The Data Delay API: stores what collectors submit, and publishes it by the rules of `datadelay.publish`."""
