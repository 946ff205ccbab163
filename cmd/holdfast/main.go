// Command holdfast shows and changes the keys of holdfast from a shell.
//
//	holdfast doctor  -redis localhost:6379
//	holdfast ls      -redis localhost:6379 -match 'account:*'
//	holdfast ls      -redis a:6379,b:6379,c:6379 -quorum
//	holdfast show    -redis localhost:6379 account:42
//	holdfast why     -redis localhost:6379 5ae50d18-2647-43dd-b67b-5c8e5ec5c9e6
//	holdfast watch   -redis localhost:6379 account:42
//	holdfast serve   -redis localhost:6379
//	holdfast revoke  -redis localhost:6379 account:42
//	holdfast clear   -redis localhost:6379 -once charge/payment:7
//	holdfast clear   -redis localhost:6379 -force account:42
//	holdfast pause   -redis localhost:6379 -for 10m partner:acme
//	holdfast limit   -redis localhost:6379 -n 2 -rate 5/1s -for 1h partner:acme
//	holdfast wake    -redis localhost:6379 account:42
//	holdfast key     -scope alice -path /charges "$IDEMPOTENCY_KEY"
//	holdfast version
//
// User and password come from the environment, see holdfast ls -h. The command uses Redis like a
// Locker and needs the same rights; ls, why and serve also need SCAN and, to detect a failover, INFO.
//
// For keys in PostgreSQL install postgres/cmd/holdfast instead, which also has -postgres.
// docs/operate.md has guides, and the fields of -json.
package main

import "github.com/holdfast-go/holdfast/internal/cli"

func main() { cli.Main(nil) }
