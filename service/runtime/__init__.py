"""Parts of every process: settings, bootstrap, metrics, logs."""
