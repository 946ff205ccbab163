package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// places are the marked places of the product's code, by name. A name with two markers has two
// places.
type places map[string][]*place

// place is a marked line of a file.
type place struct {
	name, file string // file is relative to the root
	text       string // text of the file
	line       int    // the marked line, from 1
	start, end int    // the marked code in text, without the comment
}

var (
	goMarker  = regexp.MustCompile(`^//planted:([a-z][a-z0-9-]*)$`)
	luaMarker = regexp.MustCompile(`^-- planted:([a-z][a-z0-9-]*)$`)
)

// find reads the markers of all Go and Lua files below root, except tests.
func find(root string) (places, error) {
	all := places{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		ext := filepath.Ext(path)
		if e.IsDir() {
			if name != "." && (strings.HasPrefix(e.Name(), ".") || e.Name() == "testdata" || filepath.ToSlash(name) == "proof/planted") {
				return filepath.SkipDir
			}
			return nil
		}
		if ext != ".go" && ext != ".lua" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(b, []byte("planted:")) {
			return err
		}
		if ext == ".go" {
			return all.inGo(name, string(b))
		}
		return all.inLua(name, string(b))
	})
	return all, err
}

func (p places) inGo(file, text string) error {
	var s scanner.Scanner
	fset := token.NewFileSet()
	f := fset.AddFile(file, -1, len(text))
	s.Init(f, []byte(text), nil, scanner.ScanComments)
	for last := -1; ; { // last is the last line with code
		pos, tok, lit := s.Scan()
		switch {
		case tok == token.EOF:
			return nil
		case tok == token.SEMICOLON && lit == "\n":
		case tok != token.COMMENT:
			last = f.Line(pos) + strings.Count(lit, "\n")
		case strings.Contains(lit, "planted:"):
			m := goMarker.FindStringSubmatch(lit)
			if m == nil {
				return fmt.Errorf("%s: a marker is a comment //planted:NAME alone, not %q", fset.Position(pos), lit)
			}
			p.add(m[1], file, text, f.Line(pos), f.Line(pos) == last, f.Offset(pos), "//")
		}
	}
}

func (p places) inLua(file, text string) error {
	offset, line := 0, 0
	for l := range strings.Lines(text) {
		line++
		at := luaComment(l)
		comment := strings.TrimSpace(l[at:])
		if strings.Contains(comment, "planted:") {
			m := luaMarker.FindStringSubmatch(comment)
			if m == nil {
				return fmt.Errorf("%s:%d: a marker is a comment -- planted:NAME alone, not %q", file, line, comment)
			}
			p.add(m[1], file, text, line, strings.TrimSpace(l[:at]) != "", offset+at, "--")
		}
		offset += len(l)
	}
	return nil
}

// luaComment returns the index of the comment of a line, or the length of a line without one.
func luaComment(line string) int {
	var quote byte
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case quote != 0 && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case strings.HasPrefix(line[i:], "--"):
			return i
		}
	}
	return len(line)
}

// add records a marker at offset at of line. After code it marks that line, otherwise the next line
// that is not a comment.
func (p places) add(name, file, text string, line int, trailing bool, at int, comment string) {
	pl := &place{name: name, file: file, text: text, line: line, start: strings.LastIndexByte(text[:at], '\n') + 1, end: at}
	if !trailing {
		rest := text[pl.start:]
		for l := range strings.Lines(rest) {
			if code := strings.TrimSpace(l); code != "" && !strings.HasPrefix(code, comment) {
				pl.end = pl.start + len(l)
				if comment == "--" {
					pl.end = pl.start + luaComment(l)
				}
				break
			}
			pl.start += len(l)
			pl.end = pl.start
			pl.line++
		}
	}
	p[name] = append(p[name], pl)
}

// one returns the place called name.
func (p places) one(name string) (*place, error) {
	if n := len(p[name]); n != 1 {
		return nil, fmt.Errorf("the mistake no longer fits the code: %d markers are called %q, must be one", n, name)
	}
	return p[name][0], nil
}

// span is a part of a file.
type span struct{ start, end int }

func (pl *place) of(s span) string { return pl.text[s.start:s.end] }

func (pl *place) misfit(want string) error {
	return fmt.Errorf("the mistake no longer fits the code: %s:%d, marked %s, has no %s", pl.file, pl.line, pl.name, want)
}

// goNodes returns the nodes that begin on the marked line, outer ones first.
func (pl *place) goNodes() ([]ast.Node, func(ast.Node) span, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, pl.file, pl.text, parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, err
	}
	offset := func(p token.Pos) int { return fset.Position(p).Offset }
	var nodes []ast.Node
	var visit func(ast.Node) bool
	visit = func(n ast.Node) bool {
		if f, ok := n.(*ast.FuncDecl); ok && f.Body != nil { // its name and type are not statements
			ast.Inspect(f.Body, visit)
			return false
		}
		if n != nil && fset.Position(n.Pos()).Line == pl.line {
			nodes = append(nodes, n)
		}
		return n != nil
	}
	ast.Inspect(file, visit)
	return nodes, func(n ast.Node) span { return span{offset(n.Pos()), offset(n.End())} }, nil
}

// statement returns the marked statement.
func (pl *place) statement() (span, error) {
	if !pl.isGo() {
		s := span{pl.start, pl.end}
		s.start += len(pl.of(s)) - len(strings.TrimLeft(pl.of(s), " \t"))
		s.end = s.start + len(strings.TrimSpace(pl.of(s)))
		if s.start == s.end {
			return s, pl.misfit("statement")
		}
		return s, nil
	}
	nodes, at, err := pl.goNodes()
	if err != nil {
		return span{}, err
	}
	for _, n := range nodes {
		switch n.(type) {
		case *ast.BlockStmt, *ast.CaseClause, *ast.CommClause:
		case ast.Stmt:
			return at(n), nil
		}
	}
	return span{}, pl.misfit("statement")
}

// expression returns the marked expression: the condition, result or right-hand side of the
// statement, or the value of a key.
func (pl *place) expression() (span, ast.Expr, error) {
	if !pl.isGo() {
		s, err := pl.luaCondition()
		return s, nil, err
	}
	nodes, at, err := pl.goNodes()
	if err != nil {
		return span{}, nil, err
	}
	for _, n := range nodes {
		var e ast.Expr
		switch n := n.(type) {
		case *ast.IfStmt:
			e = n.Cond
		case *ast.ForStmt:
			e = n.Cond
		case *ast.ReturnStmt:
			e = alone(n.Results)
		case *ast.AssignStmt:
			e = alone(n.Rhs)
		case *ast.ValueSpec:
			e = alone(n.Values)
		case *ast.KeyValueExpr:
			e = n.Value
		case *ast.CaseClause:
			if len(n.List) > 1 {
				return span{at(n.List[0]).start, at(n.List[len(n.List)-1]).end}, nil, nil
			}
			e = alone(n.List)
		case *ast.BlockStmt:
			continue
		case ast.Stmt: // other statements have no such expression
		case ast.Expr:
			e = n
		default:
			continue
		}
		if e == nil {
			break
		}
		return at(e), e, nil
	}
	return span{}, nil, pl.misfit("expression")
}

func alone(list []ast.Expr) ast.Expr {
	if len(list) != 1 {
		return nil
	}
	return list[0]
}

// operands returns the operands of the marked expression, which is a chain of && or ||.
func (pl *place) operands() ([]span, error) {
	s, e, err := pl.expression()
	if err != nil {
		return nil, err
	}
	if !pl.isGo() {
		return pl.luaOperands(s)
	}
	chain, ok := e.(*ast.BinaryExpr)
	if !ok || chain.Op != token.LAND && chain.Op != token.LOR {
		return nil, pl.misfit("chain of && or ||")
	}
	var list []span
	var walk func(ast.Expr)
	walk = func(x ast.Expr) {
		if b, ok := x.(*ast.BinaryExpr); ok && b.Op == chain.Op {
			walk(b.X)
			walk(b.Y)
			return
		}
		from := s.start + int(x.Pos()-e.Pos())
		list = append(list, span{from, from + int(x.End()-x.Pos())})
	}
	walk(e)
	return list, nil
}

// called returns the first call that begins on the marked line, and its arguments.
func (pl *place) called() (call span, args []span, err error) {
	if !pl.isGo() {
		return span{}, nil, pl.misfit("Go call")
	}
	nodes, at, err := pl.goNodes()
	if err != nil {
		return span{}, nil, err
	}
	for _, n := range nodes { // a call of a right-hand side begins on the line too
		if c, ok := n.(*ast.CallExpr); ok {
			for _, a := range c.Args {
				args = append(args, at(a))
			}
			return at(c), args, nil
		}
	}
	return span{}, nil, pl.misfit("call")
}

func (pl *place) isGo() bool { return filepath.Ext(pl.file) == ".go" }

var luaWord = regexp.MustCompile(`^(?:[A-Za-z_]\w*|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")`)

// luaCondition returns the condition between if, or elseif, and then.
func (pl *place) luaCondition() (span, error) {
	s, err := pl.statement()
	if err != nil {
		return s, err
	}
	code := pl.of(s)
	from := len(code) - len(strings.TrimPrefix(strings.TrimPrefix(code, "else"), "if "))
	to := pl.luaTokens(span{s.start + from, s.end}, "then")
	if from == 0 || len(to) == 0 {
		return s, pl.misfit("if … then")
	}
	return span{s.start + from, to[0].start - 1}, nil
}

// luaTokens returns the occurrences of word in s outside of strings and parentheses.
func (pl *place) luaTokens(s span, word string) (found []span) {
	depth := 0
	for i := s.start; i < s.end; {
		if w := luaWord.FindString(pl.text[i:s.end]); w != "" {
			if w == word && depth == 0 {
				found = append(found, span{i, i + len(w)})
			}
			i += len(w)
			continue
		}
		switch pl.text[i] {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		}
		i++
	}
	return found
}

func (pl *place) luaOperands(s span) ([]span, error) {
	op := "or" // or binds less than and
	at := pl.luaTokens(s, op)
	if len(at) == 0 {
		op = "and"
		at = pl.luaTokens(s, op)
	}
	if len(at) == 0 {
		return nil, pl.misfit("chain of and or or")
	}
	var list []span
	from := s.start
	for _, o := range append(at, span{s.end + 1, s.end + 1}) {
		list = append(list, span{from, o.start - 1})
		from = o.end + 1
	}
	return list, nil
}
