"""The external-storage join: right goes to a store outside, left looks it up once its right records are surely there."""
