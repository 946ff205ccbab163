// Package security has the tests of what docs/security.md says: of the rights that a Locker needs, of TLS, of what is told to telemetry, and
// of data and messages that an attacker wrote.
package security
