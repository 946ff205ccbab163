// Package security has the tests of docs/security.md. They cover the rights that a Locker needs,
// TLS, the data in telemetry, and data and messages that an attacker wrote.
package security
