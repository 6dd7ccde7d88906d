/* SPDX-License-Identifier: BSD-2-Clause */
/* By toml++, whose parser is compiled here: the command needs no library of its own for it. */
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "toml.h"

static void copy(const toml::node &from, struct lab_toml *to);

static char *copy_text(std::string_view text)
{
	char *copied = static_cast<char *>(malloc(text.size() + 1));

	if (!copied)
		abort();
	memcpy(copied, text.data(), text.size());
	copied[text.size()] = '\0';
	return copied;
}

static struct lab_toml *make_items(struct lab_toml *of, size_t count)
{
	of->items = static_cast<struct lab_toml *>(calloc(count + 1, sizeof(*of->items)));
	if (!of->items)
		abort();
	of->count = count;
	return of->items;
}

static int compare_lines(const void *a, const void *b)
{
	unsigned left = static_cast<const struct lab_toml *>(a)->line;
	unsigned right = static_cast<const struct lab_toml *>(b)->line;

	return (left > right) - (left < right);
}

static unsigned cut_key; /* the line of a key that would be cut by a zero in it; 0: there is none */

static void copy_table(const toml::table &from, struct lab_toml *to)
{
	struct lab_toml *item = make_items(to, from.size());

	to->kind = LAB_TOML_TABLE;
	for (auto &&[key, value] : from) {
		copy(value, item);
		if (std::string_view{key}.find('\0') != std::string_view::npos)
			cut_key = item->line;
		item++->key = copy_text(std::string_view{key});
	}
	qsort(to->items, to->count, sizeof(*to->items), compare_lines);
}

static void copy_array(const toml::array &from, struct lab_toml *to)
{
	struct lab_toml *item = make_items(to, from.size());

	to->kind = LAB_TOML_ARRAY;
	for (auto &&value : from)
		copy(value, item++);
}

static void copy_string(const std::string &from, struct lab_toml *to)
{
	to->text = copy_text(from);
	to->kind = from.find('\0') == std::string::npos ? LAB_TOML_STRING : LAB_TOML_OTHER;
}

static void copy(const toml::node &from, struct lab_toml *to)
{
	to->line = static_cast<unsigned>(from.source().begin.line);
	to->kind = LAB_TOML_OTHER;
	if (auto *table = from.as_table())
		copy_table(*table, to);
	else if (auto *array = from.as_array())
		copy_array(*array, to);
	else if (auto *string = from.as_string())
		copy_string(string->get(), to);
	else if (auto *integer = from.as_integer()) {
		to->kind = LAB_TOML_INTEGER;
		to->number = integer->get();
	} else if (auto *boolean = from.as_boolean()) {
		to->kind = LAB_TOML_BOOLEAN;
		to->number = boolean->get();
	}
}

extern "C" struct lab_toml *lab_toml_parse(const char *text, size_t size, unsigned *line, char *why,
					   size_t why_bytes)
{
	toml::parse_result result = toml::parse(std::string_view{text, size});
	struct lab_toml *document;

	if (!result) {
		std::string description{result.error().description()};
		*line = static_cast<unsigned>(result.error().source().begin.line);
		snprintf(why, why_bytes, "%s", description.c_str());
		return nullptr;
	}
	document = static_cast<struct lab_toml *>(calloc(1, sizeof(*document)));
	if (!document)
		abort();
	cut_key = 0;
	copy(result.table(), document);
	if (!cut_key)
		return document;
	lab_toml_free(document);
	*line = cut_key;
	snprintf(why, why_bytes, "no key has a zero character in it");
	return nullptr;
}

static void free_within(struct lab_toml *node)
{
	for (size_t i = 0; i < node->count; i++)
		free_within(&node->items[i]);
	free(node->items);
	free(node->key);
	free(node->text);
}

extern "C" void lab_toml_free(struct lab_toml *document)
{
	if (document)
		free_within(document);
	free(document);
}
