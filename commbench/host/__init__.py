"""Facts of this host: /proc, /sys, control groups, CPU modes, network interfaces, environment."""
