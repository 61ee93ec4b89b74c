// Package cli is the command line: the verbs, what they print and the codes they exit with.
//
// Main runs one of them on an Env, so that a test can hand in its own streams and variables. The verbs use the
// same library that programs use; nothing here judges anything.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"holdfast/tui"
	"holdfast/tui/demo"
	"holdfast/tui/text"
)

// Env is what a run sees of its surroundings.
type Env struct {
	Stdin  *os.File  // Required for the screen.
	Stdout io.Writer // Required.
	Stderr io.Writer // Required.
	Getenv func(string) string
	Home   string // the user's home directory; "": unknown
	Input  bool   // standard input is a terminal
	Output bool   // standard output is a terminal
	Width  int    // of that terminal, in cells; 0: unknown
}

// System returns the surroundings of this process.
func System() Env {
	env := Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv}
	env.Home, _ = os.UserHomeDir() // "" is unknown: no root is discovered there
	env.Input = term.IsTerminal(int(os.Stdin.Fd()))
	env.Output = term.IsTerminal(int(os.Stdout.Fd()))
	if env.Output {
		env.Width, _, _ = term.GetSize(int(os.Stdout.Fd()))
	}
	return env
}

// Main runs the command line args, without the program's name, and returns the code to exit with: 0 done or
// free, 1 failed, 2 usage or refused, 3 held, 4 claimable, 5 cannot tell, 6 lost, 7 unreadable, 8 blocked, 70
// internal error, 124 timed out, 128+n ended by signal n. It does not end the process. What it started has ended
// when it returns.
func Main(ctx context.Context, args []string, env Env) (code int) {
	defer func() {
		if r := recover(); r != nil {
			fmt.Fprintf(env.Stderr, "holdfast: internal error: %s\n%s", text.Safe(fmt.Sprint(r)), debug.Stack())
			code = codeInternal
		}
	}()
	if code, isChild := demo.Child(ctx, append([]string{"holdfast"}, args...)); isChild {
		return code
	}
	out := &output{Writer: env.Stdout}
	a := &app{Env: env, terminal: env.Stdout}
	a.Stdout = out
	root := a.command()
	// With nil, cobra would take the arguments of the process.
	root.SetArgs(append([]string{}, args...))
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = out.lost()
	}
	return a.report(err)
}

// app is one run: its surroundings and its global flags.
type app struct {
	Env
	terminal io.Writer // the standard output itself, for the screen
	root     string
	json     bool
	readOnly bool
	color    string
	ascii    bool
	theme    string
	timeout  span
	lookedUp bool // an ID was, so that --root helps
}

func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "holdfast [ROOT...]",
		Short: "Shows who holds file leases and file locks, why a stuck one is stuck and when it clears",
		Long: "holdfast shows who holds the file leases and file locks under a directory, says why a stuck one is\n" +
			"stuck and when it clears by itself, and lets a person act: claim, verify and release leases, acquire locks, run\n" +
			"a command under either, wait for them, break what is stuck, sweep up what is left over, and read in the log who\n" +
			"did what. What changes something for others prints its plan first, and wants --yes or --force.\n\n" +
			"On a terminal without a verb it is a screen; otherwise it prints the table of ls. Without ROOT it looks\n" +
			"where AgentMux and AFT keep their files.",
		Example: "  holdfast                      the screen\n" +
			"  holdfast why .                what holds the locks of this checkout\n" +
			"  holdfast ls --problems        what does not look right\n" +
			"  holdfast break ID             the plan for taking a lease from whoever has it",
		Args:                       cobra.ArbitraryArgs,
		SilenceErrors:              true,
		SilenceUsage:               true,
		SuggestionsMinimumDistance: 2,
		PersistentPreRunE:          func(*cobra.Command, []string) error { return a.checkFlags() },
	}
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout) // before completion's commands are made: they keep it
	root.SetErr(a.Stderr)
	flags := root.PersistentFlags()
	flags.SortFlags = false
	flags.StringVar(&a.root, "root", "", "where to look: a directory of leases or locks, or one file")
	flags.BoolVar(&a.json, "json", false, "print JSON")
	flags.BoolVar(&a.readOnly, "read-only", false, "refuse whatever would change a file")
	flags.StringVar(&a.color, "color", text.ColorAuto, "auto, always or never")
	flags.BoolVar(&a.ascii, "ascii", false, "print ASCII only")
	flags.StringVar(&a.theme, "theme", tui.Themes()[0], "colours of the screen: "+strings.Join(tui.Themes(), ", "))
	flags.Var(&a.timeout, "timeout", "give up after this time, 0 after one try; without it claim tries once, and who else waits does so for ever")

	list := &listing{app: a}
	version := root.Flags().Bool("version", false, "print the version, as the verb does")
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if *version {
			return a.printVersion()
		}
		if err := a.checkRoots(cmd.Root(), args, true); err != nil {
			return err
		}
		if a.interactive() {
			return a.screen(cmd.Context(), args)
		}
		return list.run(cmd.Context(), args)
	}
	root.AddCommand(a.demoCommand(), list.command(), a.whyCommand(), a.watchCommand(), a.claimCommand(),
		a.verifyCommand(), a.releaseCommand(), a.acquireCommand(), a.runCommand(), a.waitCommand(),
		a.breakCommand(), a.sweepCommand(), a.epochCommand(), a.logCommand(), a.versionCommand())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if name := cmd.Name(); name == "help" || name == "completion" {
			strict(cmd)
		}
	}
	return root
}

// strict refuses what cobra's own commands answer with a page of help, and success: a word that is no verb, or no
// shell.
func strict(cmd *cobra.Command) {
	cmd.Args = cobra.ArbitraryArgs
	help := cmd.Name() == "help"
	cmd.Run, cmd.RunE = nil, func(cmd *cobra.Command, args []string) error {
		about, kind := cmd, "shell"
		if help {
			about, kind = cmd.Root(), "verb"
		}
		of, rest, err := about.Find(args)
		if !help {
			of, rest, err = cmd, args, nil
		}
		if err != nil || len(rest) > 0 {
			return &problem{
				code: codeUsage, err: fmt.Errorf("unknown %s %q", kind, strings.Join(args, " ")),
				hint: "See " + about.CommandPath() + " --help.",
			}
		}
		of.InitDefaultHelpFlag()
		return of.Help()
	}
}

// checkFlags refuses values that no verb understands.
func (a *app) checkFlags() error {
	switch a.color {
	case text.ColorAuto, text.ColorAlways, text.ColorNever:
	default:
		return usage("--color is auto, always or never, not %q", a.color)
	}
	if _, ok := tui.ThemeOf(a.theme); !ok {
		return usage("--theme is one of %s, not %q", strings.Join(tui.Themes(), ", "), a.theme)
	}
	return nil
}

// checkRoots refuses a word that names nothing: a misspelt verb, or a path that is not there and could only be
// meant as a root by its slash.
func (a *app) checkRoots(root *cobra.Command, args []string, verbs bool) error {
	for _, arg := range args {
		if arg == "" {
			return usage("a ROOT is empty")
		}
		if hasSeparator(arg) {
			continue
		}
		// Whatever the system says of a word, such as that it is too long: a root it is only if it is there.
		if _, err := os.Lstat(arg); err == nil || errors.Is(err, os.ErrPermission) {
			continue
		}
		word := short(a.style(), arg)
		if !verbs {
			return usage("there is no %s here; a root that does not exist yet is written with a slash: .%c%s",
				word, filepath.Separator, word)
		}
		err := &problem{code: codeUsage, err: fmt.Errorf("unknown verb %q", word), hint: "See holdfast --help."}
		switch near := nearest(arg, root.SuggestionsFor(arg)); {
		case slices.Contains(near, arg):
			err.err = fmt.Errorf("there is no root %s here", arg)
			err.hint = "A verb stands without -- before it: holdfast " + arg
		case len(near) > 0 && len(arg) <= maxField:
			err.hint = "Did you mean " + strings.Join(near, ", ") + "?"
		}
		return err
	}
	return nil
}

// nearest keeps those of the words that differ least from what was typed.
func nearest(typed string, words []string) []string {
	least := math.MaxInt
	for _, word := range words {
		least = min(least, distance(typed, word))
	}
	return slices.DeleteFunc(words, func(word string) bool { return distance(typed, word) > least })
}

func hasSeparator(path string) bool {
	return strings.ContainsFunc(path, func(r rune) bool { return r < 0x80 && os.IsPathSeparator(uint8(r)) })
}

// style is how much the output can show.
func (a *app) style() text.Style { return text.StyleFor(a.Getenv, a.ascii) }

// bounded adds the time of --timeout to ctx.
func (a *app) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if a.timeout.given && a.timeout.d > 0 {
		return context.WithTimeout(ctx, a.timeout.d)
	}
	return context.WithCancel(ctx)
}

// span is a flag's duration: Go's form ("1m30s"), or a bare number of seconds.
type span struct {
	d     time.Duration
	given bool
}

func (s *span) String() string {
	if !s.given {
		return ""
	}
	return s.d.String()
}

func (s *span) Type() string { return "duration" }

func (s *span) Set(value string) error {
	d, err := time.ParseDuration(value)
	if err != nil {
		d, err = time.ParseDuration(value + "s")
	}
	switch {
	case err != nil:
		return errors.New("a duration like 30s or 5m is wanted")
	case d < 0:
		return errors.New("it is negative")
	}
	s.d, s.given = d, true
	return nil
}
