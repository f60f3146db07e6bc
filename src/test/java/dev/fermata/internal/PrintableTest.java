// SPDX-License-Identifier: Apache-2.0
package dev.fermata.internal;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class PrintableTest {
    @ParameterizedTest
    @ValueSource(strings = {"", "main", "/dev/shm/a b", "it's 100 %", "Straße", "東京", "שלום", "\ud83d\ude00"})
    void whatCanBePrintedStaysAsItIs(String text) {
        assertEquals(text, Printable.of(text));
    }

    @Test
    void controlCharactersAreEscaped() {
        assertEquals("\\n\\r\\t\\u0000\\u001b\\u007f\\u0085\\u009b",
                Printable.of("\n\r\t\0\u001b\u007f\u0085\u009b"));
    }

    @Test
    void endsOfLinesAndDirectionsOfWritingAreEscaped() {
        assertEquals("\\u2028\\u2029\\u202e\\u2066\\u200f\\udb40\\udc01",
                Printable.of("\u2028\u2029\u202e\u2066\u200f\udb40\udc01"));
    }

    @Test
    void halfOfASurrogatePairIsEscaped() {
        assertEquals("\\ud83dx", Printable.of("\ud83dx"));
    }

    @Test
    void nothingEndsTheQuotation() {
        assertEquals("a\\\", alive; pid 2 \\\"b\\\\", Printable.of("a\", alive; pid 2 \"b\\"));
    }

    @Test
    void thereMayBeNothing() {
        assertEquals("null", Printable.of(null));
    }
}
