// Package sqltest has the tests of fence.SQL and sqlonce on PostgreSQL, MariaDB and SQLite. It is a
// separate module, so that holdfast needs no driver.
//
// The tests start the servers from the programs of Debian's packages postgresql, mariadb-server and
// pgbouncer, on a socket in a temporary folder. If a program is missing, its tests are skipped, or
// fail if CI is true. SQLite needs no server.
package sqltest
