// Package doctor checks whether a Redis is fit for holdfast, and lists the keys on it.
//
//	package main
//
//	import (
//		"context"
//		"fmt"
//		"log"
//
//		"github.com/redis/go-redis/v9"
//
//		"github.com/holdfast-go/holdfast/doctor"
//		"github.com/holdfast-go/holdfast/lockcore"
//	)
//
//	func main() {
//		rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//		findings, err := doctor.Check(context.Background(), rdb, lockcore.Options{})
//		if err != nil {
//			log.Fatal(err) // no server could be checked
//		}
//		for _, f := range findings {
//			fmt.Println(f)
//		}
//	}
//
// # What it does
//
//   - [Check] examines each server: eviction, persistence, replicas, version, clocks, latency
//     relative to the lease, and the rights of the user. It returns a list of [Finding], worst
//     first. [CheckQuorum] does so for the servers of lockcore.NewQuorum.
//   - [List] yields the keys that are held, shared, reserved, cooling, done or abandoned.
//
// Use it at the start of a program, on a health page or in a shell: the command cmd/holdfast prints
// both.
//
// # Limits
//
//   - A check shows one moment. A check without findings proves nothing about later times.
//   - Behind a wrapped client, only one server is checked or listed.
//   - The keys of lockcore.NewMemory are in its process only. [List] lists them with that Locker;
//     [Check] does not apply. For keys in PostgreSQL use Check of module postgres.
//
// # Duties
//
//   - Give the user the rights that docs/operate.md lists. [List] also needs SCAN and, to detect a
//     failover, INFO.
//   - Pass to [Check] the client and the options that the program passes to lockcore.New.
package doctor
