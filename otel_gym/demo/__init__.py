"""The main job with the embedded default: a real small model, real SDK clients, real files and traces."""
