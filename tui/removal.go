package tui

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"holdfast/fslock"
	"holdfast/fslock/verdict"
	"holdfast/lease"
	"holdfast/sweep"
	"holdfast/watch"
)

// order is what a person decides about a removal beside what is removed.
type order struct {
	force  bool
	reason string // with force only
}

// remove removes the lease, lock or token that a plan was made for, if it is still as the plan says. The library
// compares again what is looked at here, with its beat, directly before it removes.
func (h *holds) remove(ctx context.Context, plan target, o order) error {
	ctx, end, err := h.change(ctx)
	if err != nil {
		return err
	}
	defer end()
	path := plan.ref.path
	if plan.ref.kind == watch.Lease {
		store := storeOf(h.store, path)
		if store == nil {
			return errors.New("its directory is not known as one of leases")
		}
		info, err := store.Look(plan.id)
		switch {
		case err != nil:
			return err
		case !plan.isLease(info):
			return errChanged
		}
		return h.breakLease(ctx, store, info, lease.Removal{Force: o.force, Reason: o.reason, Log: h.log})
	}
	if h.locker == nil {
		return errNoLocker
	}
	r := fslock.Removal{Force: o.force, Reason: o.reason, Log: h.log}
	if plan.ref.kind == watch.Token {
		info := h.locker.InspectToken(path)
		if !plan.isToken(info) {
			return errChanged
		}
		return h.removeToken(ctx, h.locker, info, r)
	}
	info := h.locker.Inspect(path)
	if !plan.isLock(info) {
		return errChanged
	}
	return h.breakLock(ctx, h.locker, info, r)
}

// sweeping is the plan of a sweep over some roots.
type sweeping struct {
	roots   []string
	temps   bool
	plans   []sweep.Plan // one a root
	removed []sweep.Step // what is to go
	kept    []sweep.Step
	targets []target // of removed
	errs    []error
}

// plan looks for what a sweep would remove. What two roots lead to is planned once. Looking changes nothing, so close
// does not wait for it.
func (h *holds) plan(ctx context.Context, roots []string, temps bool) *sweeping {
	s := &sweeping{roots: roots, temps: temps}
	seen := map[string]bool{}
	for _, root := range roots {
		plan, err := h.sweeper(root, temps, h.locker, h.log).Plan(ctx)
		for _, e := range plan.Errors {
			s.errs = append(s.errs, &e)
		}
		if err != nil {
			s.errs = append(s.errs, fmt.Errorf("%s: %w", root, err))
		}
		var steps []sweep.Step
		for _, step := range plan.Steps {
			where := realPath(step.Path)
			if seen[where] {
				continue
			}
			seen[where] = true
			steps = append(steps, step)
			if step.Remove {
				s.removed = append(s.removed, step)
				s.targets = append(s.targets, stepTarget(step))
			} else {
				s.kept = append(s.kept, step)
			}
		}
		plan.Steps, plan.Errors = steps, nil // errors of the plan are told with the plan
		s.plans = append(s.plans, plan)
	}
	return s
}

// realPath is a path with no link in its directory.
func realPath(path string) string {
	dir, name := filepath.Split(path)
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return filepath.Join(real, name)
	}
	return path
}

func stepTarget(s sweep.Step) target {
	t := target{name: filepath.Base(s.Path)}
	var v verdict.Verdict
	var who *verdict.Holder
	var raw []byte
	if s.Token != nil {
		t.ref, v, who, raw = ref{watch.Token, s.Path}, s.Token.Verdict, s.Token.Facts.Holder(), s.Token.Raw
	} else {
		t.ref, v, who, raw = ref{watch.Temp, s.Path}, s.Temp.Verdict, s.Temp.Facts.Holder(), s.Temp.Raw
	}
	if who != nil {
		t.nonce = who.WriterEpoch
	}
	t.fingerprint = fingerprint(v, who, 0, raw)
	return t
}

// swept is what a sweep came to.
type swept struct {
	removed, kept int
	errs          []error
}

// sweep removes what the plan says. One root that fails leaves the others to be swept.
func (h *holds) sweep(ctx context.Context, s *sweeping) (done swept) {
	ctx, end, err := h.change(ctx)
	if err != nil {
		return swept{errs: []error{err}}
	}
	defer end()
	for i, plan := range s.plans {
		report, err := h.sweeper(s.roots[i], s.temps, h.locker, h.log).Run(ctx, plan)
		done.removed += len(report.Removed)
		done.kept += len(report.Kept)
		for _, e := range report.Errors {
			done.errs = append(done.errs, &e)
		}
		if err != nil {
			done.errs = append(done.errs, fmt.Errorf("%s: %w", s.roots[i], err))
		}
	}
	return done
}
