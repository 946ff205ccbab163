package doctor

// Probe is the script that tries rights.
const Probe = probe
