// Command http is the third program of the README.
package main

import (
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

func main() {
	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS_ADDR")})
	locks, err := lockcore.New(rdb, lockcore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe("localhost:8080", api(locks)))
}

func api(locks *lockcore.Locker) http.Handler {
	once := httpmw.Idempotent(locks, tenant, httpmw.IdempotentOptions{})
	mux := http.NewServeMux()
	mux.Handle("POST /orders", once(http.HandlerFunc(createOrder)))
	return mux
}

// tenant names the caller, because equal keys of two callers are different keys.
func tenant(r *http.Request) (string, error) {
	user, _, ok := r.BasicAuth() // check the password too
	if !ok {
		return "", errors.New("no credentials") // the answer is 401
	}
	return user, nil
}

func createOrder(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintln(w, "order of", time.Now())
}
