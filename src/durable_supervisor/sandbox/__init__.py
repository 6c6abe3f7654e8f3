"""What confines a program: the kernel's mechanisms, their probes, and the plan that names them."""
