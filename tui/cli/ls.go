package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/fslock/proc"
	"holdfast/fslock/verdict"
	"holdfast/watch"
)

// listing is `ls`: what is shown, and how.
type listing struct {
	*app
	states   []string
	kinds    []string
	pidWords []string
	pids     []uint32
	hosts    []string
	problems bool
	check    bool
	jsonl    bool
	sessions bool
}

func (l *listing) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls [ROOT...]",
		Short: "Print every lease, lock, token and temp file as a table",
		Long: "Prints every lease, lock, token and temp file below the roots as a table, problems first. Nothing is\n" +
			"written by looking. It fails (1) where a root cannot be looked at at all; the others are shown. With\n" +
			"--check the exit code is that of the worst row: 7 unreadable, 8 blocked, 5 cannot tell, 4 claimable,\n" +
			"3 held, 0 free.",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := l.checkRoots(cmd.Root(), args, false); err != nil {
				return err
			}
			return l.run(cmd.Context(), args)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringSliceVar(&l.states, "state", nil, "only these states, such as dead,expired")
	flags.StringSliceVar(&l.kinds, "kind", nil, "only lease, lock, token or temp")
	flags.StringSliceVar(&l.pidWords, "pid", nil, "only what the processes of these ids hold")
	flags.StringSliceVar(&l.hosts, "host", nil, "only what is held on these hosts")
	flags.BoolVar(&l.problems, "problems", false, "only what does not look right")
	flags.BoolVar(&l.check, "check", false, "exit with the code of the worst row")
	flags.BoolVar(&l.jsonl, "jsonl", false, "print JSON, a line for each entry")
	flags.BoolVar(&l.sessions, "sessions", false, "print session ids, too (JSON)")
	return cmd
}

func (l *listing) run(ctx context.Context, args []string) error {
	if err := l.checkFilters(); err != nil {
		return err
	}
	roots, err := l.roots(args)
	if err != nil {
		return err
	}
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	snap, err := l.look(ctx, roots)
	if err != nil {
		return err
	}
	return l.show(snap)
}

// show prints the snapshot and returns what --check says of it.
func (l *listing) show(snap *watch.Snapshot) error {
	var entries []*watch.Entry
	for _, e := range snap.Entries {
		if l.wants(e) {
			entries = append(entries, e)
		}
	}
	err := l.print(func(w io.Writer) {
		enc := encoder{sessions: l.sessions, describe: describe}
		if l.json || l.jsonl {
			entries = judgedWhole(snap.Time, entries)
		}
		switch {
		case l.jsonl:
			for _, e := range entries {
				writeJSON(w, enc.entry(e))
			}
		case l.json:
			writeJSON(w, enc.look(snap, entries))
		default:
			l.table(w, snap, entries, l.filtered())
		}
	})
	if err != nil {
		return err
	}
	lost := slices.ContainsFunc(snap.Roots, func(r watch.Root) bool { return isLost(snap, &r) })
	l.tellErrors(snap, l.jsonl || lost, l.json)
	switch {
	case l.check:
		return exit(worst(snap, entries))
	case lost:
		return exit(codeFailed)
	default:
		return nil
	}
}

// isLost reports whether nothing could be looked at of a root that somebody asked for, or that is there.
func isLost(snap *watch.Snapshot, r *watch.Root) bool {
	return hasError(snap, r.Path) || r.Kind == "missing" && r.ChosenBy != "" && !watch.Discovered(*r)
}

// worst is the code of the worst of the entries. A place that could not be looked at may hold anything.
func worst(snap *watch.Snapshot, entries []*watch.Entry) int {
	code := 0
	shown := map[string]bool{}
	for _, e := range entries {
		if e.Kind == watch.Token || e.Kind == watch.Temp {
			shown[e.LockOf] = true
			continue
		}
		code = verdict.Worse(code, e.Verdict.ExitCode())
	}
	for i := range snap.Entries { // tokens and temps count through their lock, be it shown or not
		if e := snap.Entries[i]; e.Kind == watch.Lock && shown[e.Path] {
			code = verdict.Worse(code, e.Verdict.ExitCode())
		}
	}
	return verdict.Worse(code, unseenCode(snap))
}

// unseenCode is the code for what could not be looked at: what is denied is unreadable, of all else nothing can be told.
func unseenCode(snap *watch.Snapshot) int {
	switch {
	case slices.ContainsFunc(snap.Errors, isDenied):
		return codeUnreadable
	case len(unseen(snap)) > 0:
		return codeCannotTell
	default:
		return 0
	}
}

const whoMayRead = "What was denied can be looked at by a user who may read it."

func isDenied(e watch.EntryError) bool { return errors.Is(e.Err, fs.ErrPermission) }

var errName = errors.New("no such name")

func (l *listing) checkFilters() error {
	var states []string
	for s := verdict.Unknown; s <= verdict.Litter; s++ {
		states = append(states, s.String())
	}
	kinds := []string{watch.Lease.String(), watch.Lock.String(), watch.Token.String(), watch.Temp.String()}
	for _, filter := range []struct {
		flag           string
		values, allows []string
	}{{"state", l.states, states}, {"kind", l.kinds, kinds}} {
		for _, value := range filter.values {
			if !slices.Contains(filter.allows, value) {
				return usage("--%s %s: %w; there are %s", filter.flag, value, errName, strings.Join(filter.allows, ", "))
			}
		}
	}
	for _, word := range l.pidWords {
		pid, err := strconv.ParseUint(word, 10, 32)
		if err != nil || pid == 0 {
			return usage("--pid %s: a process id is wanted, from 1 to %d", word, uint32(math.MaxUint32))
		}
		l.pids = append(l.pids, uint32(pid))
	}
	if l.json && l.jsonl {
		return usage("--json and --jsonl exclude each other")
	}
	return nil
}

func (l *listing) filtered() bool {
	return l.problems || len(l.states)+len(l.kinds)+len(l.pids)+len(l.hosts) > 0
}

func (l *listing) wants(e *watch.Entry) bool {
	switch {
	case l.problems && !e.IsProblem(),
		len(l.states) > 0 && !slices.Contains(l.states, e.Verdict.State.String()),
		len(l.kinds) > 0 && !slices.Contains(l.kinds, e.Kind.String()),
		len(l.pids) > 0 && !slices.ContainsFunc(l.pids, func(pid uint32) bool { return ofPID(e, pid) }),
		len(l.hosts) > 0 && !slices.ContainsFunc(l.hosts, func(host string) bool { return ofHost(e, host) }):
		return false
	}
	return true
}

// ofPID reports whether the process pid is the entry's holder, as its record says or as it is seen from here.
func ofPID(e *watch.Entry, pid uint32) bool {
	if h := e.Holder(); h != nil && h.PID == pid {
		return true
	}
	seen := e.Seen()
	return seen != nil && seen.Proc.PID > 0 && uint64(seen.Proc.PID) == uint64(pid)
}

func ofHost(e *watch.Entry, host string) bool {
	h := e.Holder()
	return h != nil && strings.EqualFold(strings.TrimSuffix(strings.TrimSpace(h.Host), "."), strings.TrimSuffix(host, "."))
}

// look looks once at the roots.
func (a *app) look(ctx context.Context, roots []watch.Root) (*watch.Snapshot, error) {
	w := &watch.Watcher{Roots: roots}
	snap, err := w.Look(ctx)
	if err != nil {
		return nil, failed(err)
	}
	return snap, nil
}

// describe tells what a person wants to know of a process; false: nothing can be seen of it.
func describe(pid int) (proc.Details, bool) {
	d, err := proc.Local().Describe(pid)
	return d, err == nil
}

// tellErrors names the places that could not be looked at where standard output has no place for that, and what can be
// done about it. In JSON they have their own key.
func (a *app) tellErrors(snap *watch.Snapshot, named, inJSON bool) {
	st := a.style()
	if named {
		for _, place := range unseen(snap) {
			fmt.Fprintf(a.Stderr, "holdfast: %s\n", short(st, place))
		}
	}
	if slices.ContainsFunc(snap.Errors, isDenied) && !inJSON {
		fmt.Fprintln(a.Stderr, whoMayRead)
	}
}
