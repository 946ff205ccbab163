//go:build unix

package sqltest_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// childEnv makes the program a worker of TestOnceKills. It has the dialect, the dsn, the number of
// keys, and for the control the address of a Redis.
const childEnv = "HOLDFAST_SQLTEST_CHILD"

const childWorkers = 8

// work writes the effect of each key once, and prints the key after it.
func work(args string) error {
	part := strings.Split(args, "\n")
	s := map[string]*server{string(fence.Postgres): postgres, string(fence.MySQL): mariadb}[part[0]]
	keys, _ := strconv.Atoi(part[2])
	db, err := sql.Open(s.driver, part[1])
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(childWorkers)
	db.SetMaxIdleConns(childWorkers)
	once := func(ctx context.Context, key string) error {
		_, err := s.do(ctx, db, nil, key, nil)
		return err
	}
	if addr := part[3]; addr != "" { // the control: a record in Redis, and the effect in a separate transaction
		locks, err := lockcore.New(redis.NewClient(&redis.Options{Addr: addr}), lockcore.Options{Terms: lockcore.Terms{Lease: time.Second}})
		if err != nil {
			return err
		}
		once = func(ctx context.Context, key string) error {
			_, err := guard.Once(ctx, locks, key, guard.OnceOptions{Terms: lockcore.Terms{Wait: lockcore.Forever}}, func(ctx context.Context) error {
				_, err := db.ExecContext(ctx, "INSERT INTO effect VALUES ('"+key+"')")
				return err
			})
			return err
		}
	}
	var all sync.WaitGroup
	for w := range childWorkers {
		all.Go(func() {
			for k := w; k < keys; k += childWorkers {
				key := fmt.Sprint("key", k)
				for {
					err := once(context.Background(), key)
					if err == nil {
						break
					}
					if !again(err) {
						fmt.Fprintln(os.Stderr, err)
						os.Exit(1)
					}
				}
				fmt.Println(key)
			}
		})
	}
	all.Wait()
	return nil
}

// campaign kills workers with SIGKILL until kills of them are dead, and then lets one finish. It
// returns the number of keys without an effect, and of those with more than one. redisAddr is empty
// for sqlonce.
func campaign(t *testing.T, s *server, keys, kills int, redisAddr string) (missing, repeated int) {
	t.Helper()
	db, dsn := s.openAs(t, "")
	exec1(t, db, "CREATE TABLE effect (name varchar(64) NOT NULL)")
	killed := 0
	for ended := false; !ended; {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"="+strings.Join([]string{string(s.dialect), dsn, strconv.Itoa(keys), redisAddr}, "\n"))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		// A worker first replays the keys that are done, so the kill waits for a new key.
		after, n := killed*keys/(kills+1)+rand.IntN(keys/(kills+1)), 0
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if n++; killed < kills && n == after+1 {
				_ = cmd.Process.Kill()
				killed++
			}
		}
		err = cmd.Wait()
		ended = err == nil
		if err != nil && cmd.ProcessState.ExitCode() >= 0 {
			t.Fatal(err)
		}
	}
	rows, err := db.QueryContext(t.Context(), "SELECT name, count(*) FROM effect GROUP BY name")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	missing = keys
	for rows.Next() {
		var name string
		var n int
		if err := rows.Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		if missing--; n > 1 {
			repeated++
		}
	}
	if err := rows.Err(); err != nil || killed != kills {
		t.Fatal(killed, err)
	}
	return missing, repeated
}

// Workers that are killed at any moment write each effect once, because the effect and its record
// are in one transaction. The control has the record in Redis, and repeats effects.
// Shows: Q2
func TestOnceKills(t *testing.T) {
	testlevel.Campaign(t)
	onServers(t, func(t *testing.T, s *server) {
		const keys, kills = 1000, 40
		missing, repeated := campaign(t, s, keys, kills, "")
		t.Logf("sqlonce: %d keys, %d kills, %d effects are missing, %d keys have more than one", keys, kills, missing, repeated)
		if missing != 0 || repeated != 0 {
			t.Error("an effect is missing or was repeated")
		}
		r := redistest.Real(t)
		for range 5 {
			missing, repeated = campaign(t, s, keys, kills, r.Addr())
			t.Logf("control: %d keys, %d kills, %d effects are missing, %d keys have more than one", keys, kills, missing, repeated)
			if missing != 0 {
				t.Error("an effect is missing")
			}
			if repeated > 0 {
				return
			}
			r.Client(t).FlushAll(t.Context())
		}
		t.Error("inconclusive: the control repeated no effect")
	})
}
