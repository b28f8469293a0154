"""Records every floor may import: config, hardware, requests, the step batch, errors. Imports only the standard library
and NumPy."""
