package rules

// Glob matches a text with a pattern of Redis.
var Glob = glob
