package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
)

// A process is one of ours when its first argument is childVerb and its environment carries childMark. A person who
// types the verb has no mark, and what a child starts otherwise has no verb.
const (
	childVerb = "demo-child"
	childMark = "HOLDFAST_DEMO_CHILD"

	keeperVerb = "keeper" // NONCE SCENARIO...
	holderVerb = "holder" // ROOT SCENARIO
	bodyVerb   = "body"   // ROOT SCENARIO: takes what a holder takes, and exits
)

// Child runs this process as a part of a playground if it was started as one, and reports whether it was. args are
// all arguments of the program, its name first; code is what to exit with. It must be called before anything looks at
// the arguments, the standard streams or signals.
func Child(ctx context.Context, args []string) (code int, handled bool) {
	if len(args) < 4 || args[1] != childVerb || os.Getenv(childMark) == "" {
		return 0, false
	}
	// Children die with the thread that started them, and a thread dies with the goroutine that is locked to it:
	// an unlocked one may be ended by the runtime at any time.
	runtime.LockOSThread()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel() // the lifeline is closed: whoever started us is gone, or wants us to go
	}()

	var err error
	switch verb, rest := args[2], args[3:]; {
	case verb == keeperVerb:
		err = keep(ctx, rest[0], rest[1:])
	case verb == holderVerb && len(rest) == 2:
		err = hold(ctx, rest[0], rest[1])
	case verb == bodyVerb && len(rest) == 2:
		err = play(ctx, rest[0], rest[1], true, layHeld)
	default:
		err = fmt.Errorf("%s %s: bad arguments", childVerb, verb)
	}
	if err != nil {
		say("error", err.Error())
		return 1, true
	}
	return 0, true
}

// command is a command that starts this program as a child with these arguments, killed when ctx ends.
func command(ctx context.Context, args ...string) (*exec.Cmd, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, exe, append([]string{childVerb}, args...)...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), childMark+"=1")
	return cmd, nil
}

// say reports a word and a text, on one line, to whoever started us. Nothing is said after "ready": nobody listens
// any more.
func say(word, text string) { fmt.Printf("%s %q\n", word, text) }

// listen reads what a child says until it is ready. What it said it could not do is the error, or else whatever the
// runtime wrote when it died.
func listen(from io.Reader) (root string, err error) {
	var stray []string
	lines := bufio.NewScanner(io.LimitReader(from, 16<<10))
	for lines.Scan() {
		word, quoted, _ := strings.Cut(lines.Text(), " ")
		text, err := strconv.Unquote(quoted)
		switch {
		case err != nil:
			stray = append(stray, lines.Text())
		case word == "root":
			root = text
		case word == "ready":
			return root, nil
		case word == "error":
			return root, errors.New(text)
		}
	}
	return root, fmt.Errorf("a process ended before it was ready: %s", strings.Join(stray, "; "))
}
