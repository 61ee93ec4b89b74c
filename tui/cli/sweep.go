package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/fslock"
	"holdfast/fslock/audit"
	"holdfast/fslock/verdict"
	"holdfast/sweep"
	"holdfast/tui/text"
	"holdfast/watch"
)

// sweeping is `sweep`.
type sweeping struct {
	*app
	dryRun, temps, yes bool
	log                *audit.Log // nil: the user's own
	args               []string
	places             []*swept
}

// swept is one root: what is to go, and what became of it.
type swept struct {
	root    watch.Root
	sweeper *sweep.Sweeper
	plan    sweep.Plan
	names   sweep.Names
	report  sweep.Report
	errors  []sweep.PlaceError // of the plan, then of the run
}

// What `sweep --json` prints, one line. Keys that do not apply are left out.
type (
	jsonSweep struct {
		Schema   int             `json:"schema"`
		Roots    []jsonSweepRoot `json:"roots"`
		Remove   int             `json:"remove"` // how many the plan names
		Removed  int             `json:"removed"`
		AuditLog string          `json:"audit_log,omitempty"`
		Command  string          `json:"command,omitempty"` // that carries the plan out
		Done     bool            `json:"done"`
		Refused  string          `json:"refused,omitempty"`
	}
	jsonSweepRoot struct {
		Path     string          `json:"path"`
		PathB64  string          `json:"path_b64,omitempty"`
		Kind     string          `json:"kind"`
		ChosenBy string          `json:"chosen_by,omitempty"`
		Steps    []jsonSweepStep `json:"steps"`
		Errors   []jsonError     `json:"errors"`
	}
	jsonSweepStep struct {
		Kind    string `json:"kind"` // token, temp
		Path    string `json:"path"`
		PathB64 string `json:"path_b64,omitempty"`
		LockOf  string `json:"lock_of,omitempty"`
		Name    string `json:"name,omitempty"`
		Remove  bool   `json:"remove"`
		Why     string `json:"why"`
		Outcome string `json:"outcome,omitempty"` // removed, kept, failed
		Because string `json:"because,omitempty"` // of kept and failed
	}
)

func (a *app) sweepCommand() *cobra.Command {
	s := &sweeping{app: a}
	cmd := &cobra.Command{
		Use:   "sweep [ROOT...] [--temps] --yes",
		Short: "Remove reclaim tokens, and temp files, that dead processes left behind; the plan first",
		Long: "Looks for reclaim tokens, and with --temps for temp files, whose process is proven dead, and removes them with\n" +
			"--yes. It prints the plan first: what goes, what stays, and why. Each is judged again before it goes, and the audit\n" +
			"log is written first. A token of a living process, of another machine or of an unknown one always stays: `break`\n" +
			"takes it. Exit 0 done, or nothing to do; 1 a place could not be looked at, or a file not removed; 2 --yes is wanted.",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.checkRoots(cmd.Root(), args, false); err != nil {
				return err
			}
			if s.dryRun && s.yes {
				return usage("only one of --dry-run and --yes is wanted")
			}
			s.args = args
			ctx, stop := untilSignal(cmd.Context()) // between two files, not within one
			defer stop()
			ctx, cancel := s.bounded(ctx)
			defer cancel()
			return s.run(ctx)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&s.dryRun, "dry-run", false, "print the plan only")
	flags.BoolVar(&s.temps, "temps", false, "temp files, too")
	flags.BoolVar(&s.yes, "yes", false, "carry the plan out")
	return cmd
}

func (s *sweeping) run(ctx context.Context) error {
	if err := s.makePlan(ctx); err != nil {
		return err
	}
	if !s.json {
		// A plan that cannot be told is not carried out.
		if err := s.print(s.tellPlan); err != nil {
			return err
		}
	}
	if s.toGo() == 0 || s.dryRun {
		return s.finish(false)
	}
	switch {
	case !s.yes:
		return s.refuse(&problem{code: codeUsage, err: errors.New("nothing was removed: --yes is wanted"), hint: s.again()})
	case s.readOnly:
		return s.refuse(refused("sweep", text.Count(s.toGo(), "file")))
	}
	for _, place := range s.places {
		report, err := place.sweeper.Run(ctx, place.plan)
		place.report = report
		place.errors = report.Errors
		switch {
		case err == nil:
		case ctx.Err() != nil:
			place.errors = append(place.errors, sweep.PlaceError{Path: place.root.Path, Err: fmt.Errorf("the run did not end: %w", err)})
			_ = s.finish(true)
			return endedBy(ctx)
		default:
			place.errors = append(place.errors, sweep.PlaceError{Path: place.root.Path, Err: fmt.Errorf("the run did not end: %w", err)})
		}
	}
	return s.finish(true)
}

// makePlan looks at all roots. The same file in two of them is planned once.
func (s *sweeping) makePlan(ctx context.Context) error {
	roots, err := s.roots(s.args)
	if err != nil {
		return err
	}
	locker := &fslock.Locker{ReadOnly: s.readOnly}
	seen := map[string]bool{}
	for _, root := range roots {
		place := &swept{root: root, sweeper: &sweep.Sweeper{Root: root.Path, Locker: locker, Temps: s.temps, Audit: s.log}}
		plan, err := place.sweeper.Plan(ctx)
		if ctx.Err() != nil {
			return endedBy(ctx)
		}
		if err != nil {
			bad, ok := errors.AsType[*sweep.PlaceError](err)
			if !ok {
				bad = &sweep.PlaceError{Path: root.Path, Err: err}
			}
			plan.Errors = append(plan.Errors, *bad)
		} else if plan.Layout.Kind.Has(sweep.Missing) && !watch.Discovered(root) {
			plan.Errors = append(plan.Errors, sweep.PlaceError{Path: root.Path, Err: errors.New("it is not there")})
		}
		plan.Steps = slices.DeleteFunc(plan.Steps, func(step sweep.Step) bool {
			name := audit.Canonical(step.Path)
			twice := seen[name]
			seen[name] = true
			return twice
		})
		place.plan, place.errors, place.names.Layout = plan, plan.Errors, plan.Layout
		s.places = append(s.places, place)
	}
	return nil
}

// toGo is how many files the plan removes.
func (s *sweeping) toGo() int {
	n := 0
	for _, place := range s.places {
		for i := range place.plan.Steps {
			if place.plan.Steps[i].Remove {
				n++
			}
		}
	}
	return n
}

// again is the command that carries the plan out.
func (s *sweeping) again() string {
	words := []string{"holdfast", "sweep"}
	for _, place := range s.places {
		if !watch.Discovered(place.root) {
			words = append(words, verdict.Quote(place.root.Path))
		}
	}
	if s.temps {
		words = append(words, "--temps")
	}
	return strings.Join(append(words, "--yes"), " ")
}

func (s *sweeping) refuse(err error) error {
	if s.json {
		j := s.encode()
		j.Refused = err.Error()
		_ = s.print(func(w io.Writer) { writeJSON(w, j) }) // the exit code tells it to whoever does not read
	}
	return err
}

// finish tells what was done, and fails if not all could be.
func (s *sweeping) finish(ran bool) error {
	err := s.print(func(w io.Writer) {
		switch {
		case s.json:
			j := s.encode()
			j.Done = ran
			writeJSON(w, j)
		case ran:
			s.tellReport(w)
		case s.toGo() > 0:
			fmt.Fprintln(w, "nothing was removed (--dry-run)")
		}
	})
	if err != nil {
		return err
	}
	for _, place := range s.places {
		if len(place.errors) > 0 {
			return exit(codeFailed)
		}
	}
	return nil
}

func (s *sweeping) tellPlan(w io.Writer) {
	st := s.style()
	stay := 0
	for _, place := range s.places {
		fmt.Fprintf(w, "plan: sweep %s (%s)\n", st.Safe(place.root.Path), place.plan.Layout.Kind)
		for i := range place.plan.Steps {
			step := &place.plan.Steps[i]
			head := "remove"
			if !step.Remove {
				head = "keep"
				stay++
			}
			s.line(w, head, "%s: %s", place.title(step), short(st, step.Why))
		}
		for i := range place.errors {
			s.line(w, "but", "%s", short(st, place.errors[i].Error()))
		}
	}
	what := "reclaim tokens"
	if s.temps {
		what += " and temp files"
	}
	switch n := s.toGo(); {
	case len(s.places) == 0:
		fmt.Fprintln(w, "No place to look is known; --root names one.")
	case n == 0 && stay == 0:
		fmt.Fprintf(w, "Nothing to remove: there are no %s.\n", what)
	case n == 0:
		fmt.Fprintf(w, "Nothing to remove: of %s all stay.\n", text.Count(stay, "file"))
	default:
		file, err := s.log.File()
		if err != nil {
			file = "the audit log, for which there is no place: " + err.Error()
		}
		fmt.Fprintf(w, "%s to remove, %d to keep. Each is judged again first, and told in %s.\n", text.Count(n, "file"), stay, st.Safe(file))
	}
}

// title is a step's file: what a person knows it by, and its path from the root on.
func (p *swept) title(step *sweep.Step) string {
	e := watch.Entry{Root: p.root.Path, Path: step.Path, Name: p.names.Of(step.Path).Short}
	return e.Title()
}

func (s *sweeping) tellReport(w io.Writer) {
	st := s.style()
	for _, place := range s.places {
		for i := range place.report.Removed {
			fmt.Fprintf(w, "removed %s\n", st.Safe(place.report.Removed[i].Path))
		}
		for i := range place.report.Kept {
			step := &place.report.Kept[i]
			fmt.Fprintf(w, "kept %s: %s\n", st.Safe(step.Path), short(st, step.Why))
		}
		for i := range place.errors {
			fmt.Fprintf(s.Stderr, "holdfast: %s\n", short(st, place.errors[i].Error()))
		}
	}
}

func (s *sweeping) encode() jsonSweep {
	j := jsonSweep{Schema: schema, Roots: make([]jsonSweepRoot, 0, len(s.places)), Remove: s.toGo()}
	j.AuditLog, _ = s.log.File() // why there is no place for it is told when it is written
	if j.Remove > 0 {
		j.Command = s.again()
	}
	for _, place := range s.places {
		j.Removed += len(place.report.Removed)
		root := jsonSweepRoot{
			Path: place.root.Path, PathB64: inexact(place.root.Path), Kind: place.plan.Layout.Kind.String(), ChosenBy: place.root.ChosenBy,
			Steps: make([]jsonSweepStep, 0, len(place.plan.Steps)), Errors: make([]jsonError, 0, len(place.errors)),
		}
		for i := range place.plan.Steps {
			root.Steps = append(root.Steps, place.encode(&place.plan.Steps[i]))
		}
		for _, bad := range place.errors {
			root.Errors = append(root.Errors, jsonError{Path: bad.Path, PathB64: inexact(bad.Path), Error: bad.Error()})
		}
		j.Roots = append(j.Roots, root)
	}
	return j
}

func (p *swept) encode(step *sweep.Step) jsonSweepStep {
	j := jsonSweepStep{
		Kind: watch.Token.String(), Path: step.Path, PathB64: inexact(step.Path), LockOf: step.LockOf, Name: p.names.Of(step.Path).Short,
		Remove: step.Remove, Why: step.Why,
	}
	if step.Temp != nil {
		j.Kind = watch.Temp.String()
	}
	at := func(s sweep.Step) bool { return s.Path == step.Path }
	switch {
	case !step.Remove:
	case slices.ContainsFunc(p.report.Removed, at):
		j.Outcome = "removed"
	default:
		if i := slices.IndexFunc(p.report.Kept, at); i >= 0 {
			j.Outcome, j.Because = "kept", p.report.Kept[i].Why
		} else if i := slices.IndexFunc(p.errors, func(e sweep.PlaceError) bool { return e.Path == step.Path }); i >= 0 {
			j.Outcome, j.Because = "failed", strings.TrimSpace(p.errors[i].Error())
		}
	}
	return j
}
