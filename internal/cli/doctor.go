package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/internal/operator"
	"github.com/holdfast-go/holdfast/lockcore"
)

// doctor prints the findings of doctor.Check, doctor.CheckQuorum or postgres.Check.
func (sh *shell) doctor(ctx context.Context, args []string) (int, error) {
	f, t := sh.flags("doctor", "")
	lease := durationFlag(f, "lease", 30*time.Second, "Terms.Lease of the program, such as 30s; latency is compared with it")
	acks := f.Int("replica-acks", 0, "Options.ReplicaAcks.N of the program")
	asJSON := f.Bool("json", false, "print JSON: a list of findings")
	strict := f.Bool("strict", false, "exit with code 1 for warnings too")
	if err := parse(f, args, 0); err != nil {
		return exitFailed, err
	}
	switch {
	case *lease < time.Second || *lease > time.Hour:
		return exitFailed, fmt.Errorf("-lease is %v, must be between 1s and 1h", *lease)
	case *acks > 0 && (t.quorum || sh.dsn(t) != ""):
		return exitFailed, errors.New("-replica-acks is for one Redis, without -quorum and -postgres")
	case *acks < 0:
		return exitFailed, fmt.Errorf("-replica-acks is %d, must be 0 or more", *acks)
	}
	findings, err := sh.check(ctx, t, lockcore.Options{
		Prefix: t.prefix, Terms: lockcore.Terms{Lease: *lease}, ReplicaAcks: lockcore.ReplicaAcks{N: *acks},
	})
	if err != nil {
		return exitFailed, t.explain(err)
	}
	if *asJSON {
		err = sh.print(findings)
	} else {
		sh.diagnose(findings)
	}
	if slices.ContainsFunc(findings, func(f doctor.Finding) bool {
		return f.Severity == doctor.SeverityProblem || *strict && f.Severity == doctor.SeverityWarning
	}) {
		return exitProblem, err
	}
	return exitOK, err
}

func (sh *shell) check(ctx context.Context, t *target, o lockcore.Options) ([]doctor.Finding, error) {
	if sh.dsn(t) != "" {
		d, err := sh.database(t, o.Terms)
		if err != nil {
			return nil, err
		}
		defer d.Close()
		defer func() { _ = d.Locks.Close(ctx) }()
		return d.Check(ctx)
	}
	if t.schema != "" {
		return nil, errSchema
	}
	if t.quorum {
		masters, closeClients, err := t.masters(sh.getenv)
		defer closeClients()
		if err != nil {
			return nil, err
		}
		return doctor.CheckQuorum(ctx, masters, o)
	}
	rdb, err := t.client(sh.getenv)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rdb.Close() }()
	return doctor.Check(ctx, rdb, o)
}

func (sh *shell) diagnose(findings []doctor.Finding) {
	count := map[doctor.Severity]int{}
	for _, f := range findings {
		count[f.Severity]++
		at := ""
		if f.Node != "" {
			at = " (" + operator.OneLine(f.Node) + ")"
		}
		fmt.Fprintf(sh.out, "%s %s%s\n", f.Severity, f.Code, at)
		fmt.Fprintf(sh.out, "  seen   %s\n  means  %s\n  do     %s\n\n", operator.OneLine(f.Seen), operator.OneLine(f.Consequence), operator.OneLine(f.Remedy))
	}
	fmt.Fprintf(sh.out, "problems: %d, warnings: %d, notes: %d\n", count[doctor.SeverityProblem], count[doctor.SeverityWarning], count[doctor.SeverityNote])
}
