"""The moments of a window: parameters, contributions and gradients, as sketches that do not depend on placement."""
