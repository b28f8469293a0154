"""Records every floor may import: config, hardware, requests, the step batch, errors. Imports the standard library and NumPy only."""
