// Package sqltest holds the tests of fence.SQL on a PostgreSQL and a MariaDB. It is a module of its own, so that holdfast needs no driver.
//
// The tests start the servers themselves, from the programs that Debian's packages postgresql and mariadb-server install, on a socket in
// a temporary folder. Where a program is missing its tests are skipped, or fail if CI is true.
package sqltest
