package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
	"holdfast/sweep"
	"holdfast/watch"
)

// inquiry is one run of `why`: what was looked at so far, and what is to be told of it.
type inquiry struct {
	*app
	sight    *sight
	ctx      context.Context //nolint:containedctx // an inquiry is one call
	roots    []watch.Root
	whole    *watch.Snapshot // of the roots; nil until something needs it
	seen     watch.Snapshot  // all that was looked at
	entries  []*watch.Entry
	searched bool     // a root or checkout was asked for: what could not be looked at may be in it
	says     []string // what is to be said beside them
	sessions bool
}

func (a *app) whyCommand() *cobra.Command {
	var sessions bool
	var observe span
	cmd := &cobra.Command{
		Use:   "why [PATH|ID|NAME|.]...",
		Short: "Say who holds it, why it is stuck, and when it clears",
		Long: "Tells the verdict and its evidence, when it clears, what each original program would do now, and the next\n" +
			"safe command. Without an argument it tells every problem there is; with \".\" the locks of this checkout. The\n" +
			"exit code is the worst verdict's: 7 unreadable, 8 blocked, 5 cannot tell, 4 claimable, 3 held, 0 free.",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := a.bounded(cmd.Context())
			defer cancel()
			return a.why(ctx, args, sessions, observe.d)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().BoolVar(&sessions, "sessions", false, "print session ids, too (JSON)")
	cmd.Flags().Var(&observe, "observe", observeUsage)
	return cmd
}

func (a *app) why(ctx context.Context, args []string, sessions bool, observe time.Duration) error {
	roots, err := a.roots(nil)
	if err != nil {
		return err
	}
	sight := a.sight()
	inquire := func() (*inquiry, error) {
		q := &inquiry{app: a, sight: sight, ctx: ctx, roots: roots, sessions: sessions}
		if len(args) == 0 {
			return q, q.problems()
		}
		for _, arg := range args {
			if err := q.ask(arg); err != nil {
				return q, err
			}
		}
		return q, nil
	}
	q, err := inquire()
	if err == nil && observe > 0 && len(q.entries) > 0 {
		first := q.entries
		err = a.observe(ctx, observe, func() (done bool, err error) {
			q, err = inquire()
			return allChanged(first, q.entries), err
		})
	}
	if err != nil {
		return err
	}
	return q.answer(len(args) == 0)
}

func (q *inquiry) look(roots []watch.Root) (*watch.Snapshot, error) { return q.sight.all(q.ctx, roots) }

// all looks at the roots, once.
func (q *inquiry) all() (*watch.Snapshot, error) {
	if q.whole == nil {
		snap, err := q.look(q.roots)
		if err != nil {
			return nil, err
		}
		q.whole = snap
		q.note(snap)
	}
	return q.whole, nil
}

// note adds a look to what was looked at.
func (q *inquiry) note(snap *watch.Snapshot) {
	q.seen.Time, q.seen.Observer = snap.Time, snap.Observer
	for _, root := range snap.Roots { // an argument can be a discovered root, too: it chose this one later
		if !slices.ContainsFunc(q.seen.Roots, func(old watch.Root) bool { return old.Path == root.Path }) {
			q.seen.Roots = append(q.seen.Roots, root)
		}
	}
	q.seen.Entries = append(q.seen.Entries, snap.Entries...)
	for _, bad := range snap.Errors {
		if !slices.ContainsFunc(q.seen.Errors, func(old watch.EntryError) bool { return old.Path == bad.Path }) {
			q.seen.Errors = append(q.seen.Errors, bad)
		}
	}
}

// say takes in what is to be said, each line once.
func (q *inquiry) say(lines ...string) {
	for _, line := range lines {
		if !slices.Contains(q.says, line) {
			q.says = append(q.says, line)
		}
	}
}

// add takes entries in, each once: several arguments may name the same.
func (q *inquiry) add(entries ...*watch.Entry) {
	for _, e := range entries {
		if !slices.ContainsFunc(q.entries, func(old *watch.Entry) bool { return old.Kind == e.Kind && old.Path == e.Path }) {
			q.entries = append(q.entries, e)
		}
	}
}

// problems adds every lease and lock that does not look right.
func (q *inquiry) problems() error {
	snap, err := q.all()
	if err != nil {
		return err
	}
	q.searched = true
	q.addProblems(snap)
	return nil
}

func (q *inquiry) addProblems(snap *watch.Snapshot) {
	for _, e := range snap.Entries {
		if e.IsProblem() && (e.Kind == watch.Lease || e.Kind == watch.Lock) {
			q.add(e)
		}
	}
}

// ask finds what one argument names: a path, the id or name of a lease, or a checkout.
func (q *inquiry) ask(arg string) error {
	if arg == "" {
		return usage("an argument is empty")
	}
	_, err := os.Lstat(arg)
	dir := err == nil && isDir(arg) && !sweep.IsEntry(filepath.Base(arg))
	switch {
	case dir && (arg == "." || hasSeparator(arg)):
		return q.askDir(arg)
	case err == nil && (hasSeparator(arg) || sweep.IsEntry(filepath.Base(arg))):
		return q.askPath(arg)
	}
	snap, lookErr := q.all()
	if lookErr != nil {
		return lookErr
	}
	if found := snap.Find(arg); len(found) > 0 {
		q.add(found...)
		return nil
	}
	switch {
	case dir:
		return q.askDir(arg)
	case err == nil:
		return q.askPath(arg)
	case errors.Is(err, fs.ErrPermission) && hasSeparator(arg):
		return q.askPath(arg)
	case !errors.Is(err, fs.ErrNotExist) && hasSeparator(arg):
		return failed(err)
	case sweep.IsEntry(filepath.Base(arg)):
		return q.askPath(arg)
	}
	return q.unknown(arg)
}

// askPath adds the entry at a path. Only that is looked at: a root elsewhere may not answer.
func (q *inquiry) askPath(arg string) error {
	path, err := absolute(arg)
	if err != nil {
		return failed(err)
	}
	snap, err := q.look([]watch.Root{{Path: path, ChosenBy: "argument"}})
	if err != nil {
		return err
	}
	q.note(snap)
	found := len(q.entries)
	for _, e := range snap.Entries {
		if e.Path != path && e.Kind != watch.Lease {
			continue // what belongs to the lock is told with it
		}
		if e.Name == "" {
			e.Name = nameOf(q.roots, path)
		}
		q.add(e)
	}
	if found < len(q.entries) {
		return nil
	}
	// What is not there, or is a directory, is no root of its own; it is judged all the same.
	e, err := q.inspect(path)
	if err != nil {
		return err
	}
	e.Name = nameOf(q.roots, path)
	q.add(e)
	return nil
}

// inspect looks at one place alone: a lease by its name, else a lock.
func (q *inquiry) inspect(path string) (*watch.Entry, error) {
	if id, isLease := sweep.LeaseOf(path); isLease {
		t := &target{kind: watch.Lease, path: filepath.Join(filepath.Dir(path), id+".lease.json"), id: id}
		see, err := q.sight.look(t)
		if err != nil {
			return nil, q.refusal(err)
		}
		see.Root = path
		return &see.Entry, nil
	}
	if lock := sweep.LockOf(path); lock != "" {
		path = lock
	}
	info := q.sight.locker.Inspect(path)
	return &watch.Entry{
		Kind: watch.Lock, Root: path, Path: path, Subject: info.Facts, Verdict: info.Verdict, Token: info.Token,
	}, nil
}

// unknown says that nothing is known by that name, and what sounds like it.
func (q *inquiry) unknown(arg string) error {
	p := &problem{code: codeFailed, err: fmt.Errorf("no lease, lock or agent is called %q", arg)}
	if hasSeparator(arg) {
		p.err = fmt.Errorf("there is no %s", arg)
	}
	var near, places []string
	for _, e := range q.whole.Entries {
		for _, name := range [...]string{e.ID, e.Name} {
			if name != "" && alike(name, arg) && !slices.Contains(near, name) && len(near) < 5 {
				near = append(near, name)
			}
		}
	}
	for _, root := range q.roots {
		places = append(places, root.Path)
	}
	switch {
	case slices.ContainsFunc(q.whole.Errors, isDenied):
		p.code, p.hint = codeUnreadable, "Could not be looked at: "+strings.Join(unseen(q.whole), ", ")+". "+whoMayRead
	case len(near) > 0:
		p.hint = "Did you mean " + strings.Join(near, ", ") + "?"
	case len(places) > 0:
		p.hint = "Looked in " + strings.Join(places, ", ") + "; --root names another place."
	default:
		p.hint = "No place to look is known; --root names one."
	}
	return p
}

// alike reports whether one word begins with the other, or they differ in at most two places.
func alike(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) || distance(a, b) <= 2
}

// distance is how many bytes have to be put in, taken out or changed to turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// answer prints what was found and returns the worst verdict's code.
func (q *inquiry) answer(everything bool) error {
	watch.SortByUrgency(q.entries)
	enc := &encoder{sessions: q.sessions, advise: true, seen: &q.seen, describe: describe}
	err := q.print(func(w io.Writer) {
		switch {
		case q.json:
			writeJSON(w, enc.look(&q.seen, q.entries))
		case everything:
			q.tellEverything(w, enc)
		default:
			q.tellAsked(w, enc)
		}
	})
	if err != nil {
		return err
	}
	code := 0
	for _, e := range q.entries {
		code = verdict.Worse(code, e.Verdict.ExitCode())
	}
	// What was found by its name is not in doubt because of what else could not be looked at.
	if q.searched && len(unseen(&q.seen)) > 0 {
		q.tellErrors(&q.seen, false, q.json)
		code = verdict.Worse(code, unseenCode(&q.seen))
	}
	told := q.searched && slices.ContainsFunc(q.seen.Errors, isDenied)
	if !told && !q.json && slices.ContainsFunc(q.entries, func(e *watch.Entry) bool { return denied(e.Seen()) }) {
		fmt.Fprintln(q.Stderr, whoMayRead)
	}
	return exit(code)
}

func denied(seen *verdict.Seen) bool {
	return seen != nil && seen.Problem != nil && seen.Problem.Problem == record.Denied
}

func (q *inquiry) tellEntries(w io.Writer, enc *encoder) {
	for i, e := range q.entries {
		if i > 0 {
			fmt.Fprintln(w)
		}
		q.explain(w, enc, e)
	}
}

// tellAsked tells what was asked for, and what is beside it.
func (q *inquiry) tellAsked(w io.Writer, enc *encoder) {
	st, lines := q.style(), q.says
	if q.searched {
		for _, place := range unseen(&q.seen) {
			lines = append(lines, "Could not be looked at: "+short(st, place))
		}
	}
	q.tellEntries(w, enc)
	if len(q.entries) > 0 && len(lines) > 0 {
		fmt.Fprintln(w)
	}
	for _, line := range lines {
		fmt.Fprintln(w, st.Safe(line))
	}
}

// tellEverything tells every problem there is.
func (q *inquiry) tellEverything(w io.Writer, enc *encoder) {
	st, places := q.style(), unseen(q.whole)
	switch {
	case len(q.whole.Entries) == 0:
		fmt.Fprintln(w, headline(st, q.whole))
		tellUnseen(w, st, places)
		q.tellEmpty(w, q.whole)
		return
	case len(places) > 0:
		fmt.Fprintln(w, strings.Replace(headline(st, q.whole), seeWhy, "", 1))
		tellUnseen(w, st, places)
		if len(q.entries) > 0 {
			fmt.Fprintln(w)
		}
	case len(q.entries) == 0:
		fmt.Fprintf(w, "There is no problem: of %d entries none is stuck, late, dead, expired, unreadable or unknown.\n", len(q.whole.Entries))
	}
	q.tellEntries(w, enc)
}
