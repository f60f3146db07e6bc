// SPDX-License-Identifier: Apache-2.0
package dev.fermata.bench;

import java.util.Arrays;
import java.util.Locale;
import java.util.stream.Collectors;

/** Writes JSON, one member a line. */
final class Json {
    private final StringBuilder text = new StringBuilder();
    private String indent = "\n";
    private boolean first = true;
    private boolean afterKey;

    Json object(Runnable members) {
        return nested('{', members, '}');
    }

    Json array(Runnable elements) {
        return nested('[', elements, ']');
    }

    private Json nested(char open, Runnable content, char close) {
        separate();
        text.append(open);
        String outer = indent;
        indent += "  ";
        first = true;
        content.run();
        indent = outer;
        text.append(indent).append(close);
        first = false;
        return this;
    }

    Json key(String name) {
        separate();
        text.append(quoted(name)).append(": ");
        afterKey = true;
        return this;
    }

    void put(String name, String value) {
        key(name).raw(quoted(value));
    }

    void put(String name, double value) {
        key(name).raw(number(value));
    }

    void put(String name, boolean value) {
        key(name).raw(String.valueOf(value));
    }

    void value(double[] values) {
        raw(Arrays.stream(values).mapToObj(Json::number).collect(Collectors.joining(", ", "[", "]")));
    }

    private void raw(String value) {
        separate();
        text.append(value);
    }

    private void separate() {
        if (!afterKey && !text.isEmpty()) {
            text.append(first ? "" : ",").append(indent);
        }
        first = false;
        afterKey = false;
    }

    private static String number(double value) {
        return value == Math.rint(value) ? String.valueOf((long) value) : String.format(Locale.ROOT, "%.4f", value);
    }

    private static String quoted(String value) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : value.toCharArray()) {
            if (c == '"' || c == '\\') {
                quoted.append('\\').append(c);
            } else if (c < ' ') {
                quoted.append("\\u%04x".formatted((int) c));
            } else {
                quoted.append(c);
            }
        }
        return quoted.append('"').toString();
    }

    @Override
    public String toString() {
        return text + "\n";
    }
}
