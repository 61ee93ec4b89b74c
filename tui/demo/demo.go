// Package demo makes a playground: a temporary directory with leases and locks of real processes of ours, one
// scenario each, to look at and to try things on.
//
// The playground belongs to a keeper, a child in a session of its own. The keeper starts all other processes
// and is the only one that ends, reaps and forgets them, so that no pid is ever signalled after it went to
// somebody else. It ends when its lifeline closes: a pipe whose writing end only the process that called
// Start has, and which the kernel closes however that process dies. Then it kills its children, stopped ones
// included, and removes the directory.
//
// If the keeper itself is killed, its children die with it on Linux; elsewhere all but the stopped ones do. The
// directory is then removed by Close. When both are killed at the same instant, the directory stays.
//
// Where processes cannot be stopped (Windows), the scenarios that need it are not there.
package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// Scenario is one situation that a playground can show.
type Scenario struct {
	Name string // a word: "live", "stopped", "blocked", ...
	Says string // one sentence: what there is to see
}

// Scenarios returns what can be shown on this system, in the order in which it is best learned.
func Scenarios() []Scenario {
	all := scenes()
	list := make([]Scenario, len(all))
	for i, s := range all {
		list[i] = s.Scenario
	}
	return list
}

// ScenarioError is a scenario that is not known here.
type ScenarioError struct {
	Name  string
	Known []string // what there is
}

func (e *ScenarioError) Error() string {
	s := fmt.Sprintf("no scenario %q; there are: %s", e.Name, strings.Join(e.Known, ", "))
	if !canStop {
		s += " (none with a stopped process or a zombie on this system)"
	}
	return s
}

// keeperGrace is how long the keeper has to end everything before it is killed itself.
const keeperGrace = 10 * time.Second

// Playground is a directory with entries in it and the processes that hold them. It is there until Close, or until
// the process that started it dies.
type Playground struct {
	root     string
	nonce    string
	keeper   *exec.Cmd
	lifeline *os.File
	grace    time.Duration
	hangUp   func() *time.Timer
	close    func() error
}

// Start makes a playground of the named scenarios, of all when none is named, and returns when every entry stands on
// disk and every process is in its wanted condition. What time does to them begins there: a stopped lease is
// expired 15 s later. ctx bounds the start only. A name that is not known is a *ScenarioError. After an error nothing
// is left behind.
//
// The program must call Child before anything else in its main function.
func Start(ctx context.Context, only []string) (*Playground, error) {
	names, err := choose(only)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, &startError{err}
	}
	p := &Playground{nonce: rand.Text(), grace: keeperGrace}
	p.hangUp, p.close = sync.OnceValue(p.cut), sync.OnceValue(p.end)
	reports, err := p.startKeeper(names)
	if err != nil {
		return nil, &startError{err}
	}
	defer reports.Close()

	stop := context.AfterFunc(ctx, func() { p.hangUp() })
	p.root, err = listen(reports)
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, &startError{errors.Join(err, p.Close())}
	}
	return p, nil
}

// startError is a playground that could not be made.
type startError struct{ err error }

func (e *startError) Error() string { return "start playground: " + e.err.Error() }
func (e *startError) Unwrap() error { return e.err }

// choose returns the wanted names in the order of the table, each once.
func choose(only []string) ([]string, error) {
	var known, chosen []string
	for _, s := range scenes() {
		known = append(known, s.Name)
		if len(only) == 0 || slices.Contains(only, s.Name) {
			chosen = append(chosen, s.Name)
		}
	}
	for _, name := range only {
		if !slices.Contains(known, name) {
			return nil, &ScenarioError{Name: name, Known: known}
		}
	}
	return chosen, nil
}

// startKeeper starts the keeper and returns what it reports.
func (p *Playground) startKeeper(names []string) (reports *os.File, err error) {
	lifeline, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer lifeline.Close()
	reports, theirs, err := os.Pipe()
	if err != nil {
		_ = ours.Close()
		return nil, err
	}
	defer theirs.Close()

	p.keeper, err = command(context.Background(), append([]string{keeperVerb, p.nonce}, names...)...)
	if err == nil {
		p.keeper.Stdin, p.keeper.Stdout, p.keeper.Stderr = lifeline, theirs, theirs
		detach(p.keeper)
		err = p.keeper.Start()
	}
	if err != nil {
		_, _ = ours.Close(), reports.Close()
		return nil, err
	}
	p.lifeline = ours
	return reports, nil
}

// Root returns the directory to show. It is recognised as AgentMux's and AFT's at once.
func (p *Playground) Root() string { return p.root }

// Close ends every process of the playground and removes its directory, or says what is left. It bounds itself; further
// calls return what the first one did.
func (p *Playground) Close() error { return p.close() }

// cut closes the lifeline. A keeper that was stopped, or sits in a system call, is killed when its grace is over: it
// must not keep the program from ending.
func (p *Playground) cut() *time.Timer {
	_ = p.lifeline.Close()
	return time.AfterFunc(p.grace, func() { _ = p.keeper.Process.Kill() })
}

func (p *Playground) end() error {
	late := p.hangUp()
	_ = p.keeper.Wait()
	late.Stop()
	// The keeper removed the directory, unless somebody killed it.
	return removeGround(p.root, p.nonce)
}
