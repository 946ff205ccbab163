package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// masters returns the clients of -quorum, and a function that closes them.
func (t *target) masters(getenv func(string) string) (masters []*redis.Client, closeAll func(), err error) {
	closeAll = func() {
		for _, rdb := range masters {
			_ = rdb.Close()
		}
	}
	if t.cluster || t.sentinel != "" || t.master != "" {
		return masters, closeAll, errors.New("-quorum goes without -cluster, -sentinel and -master")
	}
	addrs := strings.Split(t.address(getenv), ",")
	if n := len(addrs); n != 3 && n != 5 && n != 7 {
		return masters, closeAll, fmt.Errorf("-quorum: %s has %s, must have 3, 5 or 7 with commas", t.from, counted(n))
	}
	for _, addr := range addrs {
		if err := noPassword(addr); t.from == "-redis" && err != nil {
			return masters, closeAll, err
		}
		if strings.Contains(addr, "@") && !strings.Contains(addr, "://") { // it may be a part of a password, which options would print
			return masters, closeAll, fmt.Errorf("%s has an address with @ that is not a URL: write a comma in a password as %%2C", t.from)
		}
	}
	for _, addr := range addrs {
		o, err := t.options(addr)
		if err != nil {
			return masters, closeAll, err
		}
		t.authenticate(o, getenv)
		masters = append(masters, redis.NewClient(o))
	}
	return masters, closeAll, nil
}

func counted(addresses int) string {
	if addresses == 1 {
		return "1 address"
	}
	return fmt.Sprintf("%d addresses", addresses)
}
