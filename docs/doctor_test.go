package docs_test

import (
	"context"
	"errors"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/lockcore"
)

// fit is a check that a program may make before it begins.
func fit(ctx context.Context, rdb redis.UniversalClient, options lockcore.Options) error {
	findings, err := doctor.Check(ctx, rdb, options)
	if err != nil {
		return err // nothing could be checked: Redis is unavailable, or rejects the connection
	}
	for _, f := range findings {
		if f.Severity == doctor.SeverityProblem {
			return errors.New(f.String())
		}
	}
	return nil
}

// fit returns nil for a Redis that works, and ErrUnavailable for one that is not available.
func TestFit(t *testing.T) {
	m := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer func() { _ = rdb.Close() }()
	if err := fit(t.Context(), rdb, lockcore.Options{}); err != nil {
		t.Error(err)
	}
	m.Close()
	if err := fit(t.Context(), rdb, lockcore.Options{}); !errors.Is(err, lockcore.ErrUnavailable) {
		t.Error(err)
	}
}
