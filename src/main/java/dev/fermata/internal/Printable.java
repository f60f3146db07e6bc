// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

/**
 * Text that comes from a file or a user, as it goes into a message: on one line, and no more than it seems to be. What
 * could end the line or the quotation, steer a terminal or turn the direction of writing is escaped as in Java.
 */
public final class Printable {
    private Printable() {
    }

    /** The text, as the content of a string literal. */
    public static String of(Object text) {
        StringBuilder printable = new StringBuilder();
        String.valueOf(text).codePoints().forEach(c -> append(printable, c));
        return printable.toString();
    }

    private static void append(StringBuilder printable, int c) {
        switch (c) {
            case '"', '\\' -> printable.append('\\').append((char) c);
            case '\n' -> printable.append("\\n");
            case '\r' -> printable.append("\\r");
            case '\t' -> printable.append("\\t");
            default -> {
                if (isVisible(c)) {
                    printable.appendCodePoint(c);
                } else {
                    for (char unit : Character.toChars(c)) {
                        printable.append("\\u%04x".formatted((int) unit));
                    }
                }
            }
        }
    }

    private static boolean isVisible(int c) {
        return switch (Character.getType(c)) {
            case Character.CONTROL, Character.FORMAT, Character.SURROGATE, Character.LINE_SEPARATOR,
                    Character.PARAGRAPH_SEPARATOR -> false;
            default -> true;
        };
    }
}
