package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"unicode"
)

// folder is the Go code of one directory.
type folder struct {
	program         bool
	size, generated size
	imports         map[string]bool // of the source, without tests
	symbols         map[string]bool
	marked          []marked
}

// size is a number of lines.
type size struct{ source, test int }

func (s size) plus(o size) size { return size{s.source + o.source, s.test + o.test} }

func (s size) print(name string) { row(name, s.source, s.test, s.source+s.test) }

func (f *folder) add(name string, text []byte) error {
	file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	test := strings.HasSuffix(name, "_test.go")
	lines := size{source: bytes.Count(text, []byte("\n"))}
	if test {
		lines.source, lines.test = 0, lines.source
	}
	if ast.IsGenerated(file) {
		f.generated = f.generated.plus(lines)
	} else {
		f.size = f.size.plus(lines)
	}
	if test {
		for _, d := range file.Decls {
			f.mark(d)
		}
		return nil
	}
	f.program = f.program || file.Name.Name == "main"
	for _, i := range file.Imports {
		to, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return err
		}
		f.imports[to] = true
	}
	for _, d := range file.Decls {
		f.declare(d)
	}
	return nil
}

func (f *folder) declare(d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			f.export("", d.Name)
		} else if of := receiver(d.Recv.List[0].Type); of.IsExported() {
			f.export(of.Name+".", d.Name)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.ValueSpec:
				f.export("", s.Names...)
			case *ast.TypeSpec:
				f.export("", s.Name)
				if s.Name.IsExported() {
					f.members(s)
				}
			}
		}
	}
}

// members adds the fields of a struct and the methods of an interface.
func (f *folder) members(s *ast.TypeSpec) {
	var list *ast.FieldList
	switch t := s.Type.(type) {
	case *ast.StructType:
		list = t.Fields
	case *ast.InterfaceType:
		list = t.Methods
	default:
		return
	}
	for _, m := range list.List {
		f.export(s.Name.Name+".", m.Names...)
	}
}

func (f *folder) export(prefix string, names ...*ast.Ident) {
	for _, n := range names {
		if n.IsExported() {
			f.symbols[prefix+n.Name] = true
		}
	}
}

// receiver returns the name of the type of a method.
func receiver(t ast.Expr) *ast.Ident {
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x
		default:
			return ast.NewIdent("_")
		}
	}
}

// page is a page of Markdown.
type page struct {
	words     int
	generated bool // one of its lines says by which command it was written
}

func readPage(text string) page {
	p, code := page{}, false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
			continue
		}
		if code {
			continue
		}
		p.generated = p.generated || strings.HasPrefix(line, "Written by `")
		for word := range strings.FieldsSeq(line) {
			if strings.ContainsFunc(word, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
				p.words++
			}
		}
	}
	return p
}
